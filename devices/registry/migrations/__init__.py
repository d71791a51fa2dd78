"""Every change of the tables, in order; Alembic runs those that a database has not had."""
