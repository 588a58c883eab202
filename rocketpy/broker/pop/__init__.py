"""Pop consumption: the broker hands out messages, and gets those back that nobody acks.

Source: PopMessageProcessor, AckMessageProcessor, ChangeInvisibleTimeProcessor, PopReviveService,
ConsumerOrderInfoManager, PopLongPollingService of 5.4.0.
"""
