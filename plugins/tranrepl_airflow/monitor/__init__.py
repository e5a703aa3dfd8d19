"""Replication Monitor: pages within Airflow's UI that show where every publication stands."""
