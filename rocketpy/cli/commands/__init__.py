"""Commands for users and operators; each is imported when it is called."""
