"""Device registry in a database: an SQLite file, or any database that an SQLAlchemy URL names."""
