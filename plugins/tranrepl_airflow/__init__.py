"""Airflow operators, notifiers and DAG building."""
