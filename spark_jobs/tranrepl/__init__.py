"""Transactional replication: the library. It knows nothing of Airflow."""

__version__ = "0.3.0"
