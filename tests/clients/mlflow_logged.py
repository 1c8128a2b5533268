"""Reads what a training logged with MLflow's own client.

Usage: mlflow_logged.py URL JOB. The job logged the image pictures/gradient, the table classes and the histogram weights/all
at the steps 1 to 8."""

import json
import os
import sys
import tempfile

import mlflow
from mlflow import MlflowClient

url, job = sys.argv[1:]
mlflow.set_tracking_uri(url)
client = MlflowClient()


def listed(path=None):
    return {one.path: one for one in client.list_artifacts(job, path)}


assert listed()["logged"].is_dir, listed()
assert set(listed("logged")) == {"logged/classes", "logged/pictures", "logged/weights"}, listed("logged")
images = listed("logged/pictures/gradient")
assert list(images) == [f"logged/pictures/gradient/{step:08}.png" for step in range(1, 9)], images
with tempfile.TemporaryDirectory() as folder:
    path = client.download_artifacts(job, "logged/pictures/gradient/00000003.png", folder)
    with open(path, "rb") as file:
        content = file.read()
    assert content.startswith(b"\x89PNG") and len(content) == images["logged/pictures/gradient/00000003.png"].file_size
    whole = mlflow.artifacts.download_artifacts(run_id=job, artifact_path="logged", dst_path=os.path.join(folder, "all"))
    with open(os.path.join(whole, "classes", "00000008.table.json")) as file:
        assert [column["name"] for column in json.load(file)["columns"]][0] == "class"
    with open(os.path.join(whole, "weights", "all", "00000001.histogram.json")) as file:
        histogram = json.load(file)
    assert len(histogram["edges"]) == len(histogram["counts"]) + 1
    try:
        client.download_artifacts(job, "logged/pictures/gradient/00000009.png", folder)
        raise AssertionError("step 9 was not logged")
    except Exception as error:
        assert "404" in str(error) or "00000009" in str(error), error
image = mlflow.artifacts.load_image(f"runs:/{job}/logged/pictures/gradient/00000003.png")
assert image.size[0] == 16, image.size
print("ok")
