"""What is stored and what a fire stores: headers, subjects, definitions, generated messages. Pure."""
