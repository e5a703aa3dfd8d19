"""What stands in for real machines on a laptop: PostgreSQL servers, an Airflow home, and the demo that uses both."""
