"""Operations of the broker on plain values, without connections, commands, header fields or frames.

`rocketpy/broker/processor/` translates requests of the remoting protocol into these, and their
outcomes into responses. Another protocol would be a second adapter beside it.
"""
