"""The broker's tables and their JSON files: topics, groups, offsets, message request modes."""
