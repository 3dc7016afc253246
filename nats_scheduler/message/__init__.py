"""The content of stored messages and of fires: headers, subjects, definitions, generated messages. Pure."""
