"""Bodies of requests and responses, one module for each concern, based on `json_body`."""
