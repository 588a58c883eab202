"""Files of timed messages: timer wheel, timer log and their checkpoint, in Apache's format."""
