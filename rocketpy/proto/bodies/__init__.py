"""Bodies of requests and responses, one module a concern; `json_body` is what they share."""
