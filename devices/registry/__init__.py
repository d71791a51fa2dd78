"""Device registry in a database: an SQLite file, or another database that SQLAlchemy's URL
names."""
