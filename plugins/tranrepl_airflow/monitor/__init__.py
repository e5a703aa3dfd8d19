"""Replication Monitor: pages within Airflow's UI with the state of every publication."""
