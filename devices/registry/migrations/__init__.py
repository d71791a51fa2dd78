"""All changes of the tables, in order. Alembic runs those that a database does not have yet."""
