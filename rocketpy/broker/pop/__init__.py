"""Pop consumption: the broker hands out messages and redelivers those that are not acked in time.

Source: PopMessageProcessor, AckMessageProcessor, ChangeInvisibleTimeProcessor, PopReviveService,
ConsumerOrderInfoManager, PopLongPollingService of 5.4.0.
"""
