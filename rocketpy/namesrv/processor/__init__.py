"""Request processors, one module for each concern; `server.py` assigns the request codes."""
