"""What a broker does for its clients, on values: no connection, command, header field or frame.

`rocketpy/broker/processor/` turns requests of the remoting protocol into these and their outcomes
into responses; another protocol would do the same beside it.
"""
