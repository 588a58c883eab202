"""Request processors, one module for each concern; `controller.py` assigns the request codes."""
