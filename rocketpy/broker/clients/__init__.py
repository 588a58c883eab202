"""Connected clients: producers, consumers, their groups and queue locks."""
