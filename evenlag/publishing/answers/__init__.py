"""Answers to approval requests: who decided, who may decide, and how an answer reaches Airflow."""
