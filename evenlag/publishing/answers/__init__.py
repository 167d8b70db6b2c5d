"""Answers to approval requests: who answered, who may, and how an answer reaches Airflow."""
