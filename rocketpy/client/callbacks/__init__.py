"""Functions of the application: handlers, their threads, hooks, middlewares."""
