"""Prints the names of the experiments that a key sees, which MLflow's client sends as a bearer token.

Usage: mlflow_token.py URL KEY"""

import os
import sys

os.environ["MLFLOW_TRACKING_URI"], os.environ["MLFLOW_TRACKING_TOKEN"] = sys.argv[1:3]
import mlflow

print(" ".join(experiment.name for experiment in mlflow.search_experiments(order_by=["name ASC"]) if experiment.name != "faces"))
