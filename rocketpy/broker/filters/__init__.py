"""SQL92 filters of connected groups, kept over restarts as Apache keeps them."""
