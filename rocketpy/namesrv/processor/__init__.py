"""What responds to requests, one module a concern; `server.py` says which code goes where."""
