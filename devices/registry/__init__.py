"""The devices in a database: SQLite's file, or whatever else SQLAlchemy's URL names."""
