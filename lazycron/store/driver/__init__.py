"""How statements reach a driver: the only place that knows SQLAlchemy's private names."""
