"""Further global constraints, of meeting schedules: breaks between meetings, and changes of place."""
