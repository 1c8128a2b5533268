"""Asks a server for runs with MLflow's own client, and logs a run.

Usage: mlflow_runs.py URL. The server has the jobs digits-1 (lr 0.05) and digits-2 (lr 0.01) of the project digits and the
experiment rate, each with the output confusion.csv, and digits-3, which waits or failed."""

import math
import os
import sys
import tempfile

os.environ["MLFLOW_ENABLE_ASYNC_LOGGING"] = "false"
import mlflow
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag, ViewType
from mlflow.exceptions import MlflowException

url = sys.argv[1]
mlflow.set_tracking_uri(url)
client = MlflowClient()


def refused(call, code):
    try:
        call()
    except MlflowException as error:
        assert error.error_code == code, (error.error_code, str(error))
        return str(error)
    raise AssertionError(f"expected {code}")


# Experiments are projects.
names = {experiment.name: experiment for experiment in mlflow.search_experiments()}
assert {"digits", "Default"} <= set(names), names
digits = client.get_experiment_by_name("digits")
assert digits.experiment_id == names["digits"].experiment_id and digits.lifecycle_stage == "active"
assert client.get_experiment(digits.experiment_id).name == "digits"
assert client.get_experiment("0").name == "Default"
assert client.get_experiment_by_name("none") is None
assert [one.name for one in mlflow.search_experiments(filter_string="name LIKE 'dig%'")] == ["digits"]
ordered = [one.name for one in mlflow.search_experiments(order_by=["name DESC"])]
assert ordered == sorted(ordered, reverse=True)
refused(lambda: client.get_experiment("12345"), "RESOURCE_DOES_NOT_EXIST")

# Jobs are runs.
run = client.get_run("digits-1")
assert run.info.run_name == "digits-1" and run.info.experiment_id == digits.experiment_id
assert run.info.status == "FINISHED" and run.info.start_time <= run.info.end_time
assert run.data.params["lr"] == "0.05", run.data.params
assert run.data.tags["saggar.experiment"] == "rate" and run.data.tags["saggar.state"] == "SUCCEEDED"
history = client.get_metric_history("digits-1", "loss")
assert len(history) > 3 and history[-1].value == run.data.metrics["loss"]
assert [point.step for point in history] == sorted(point.step for point in history)
assert all(run.info.start_time <= point.timestamp <= run.info.end_time for point in history)
assert client.get_metric_history("digits-1", "none") == []
refused(lambda: client.get_run("digits-9"), "RESOURCE_DOES_NOT_EXIST")


def search(filter_string="", order_by=None, **options):
    runs = mlflow.search_runs(
        experiment_ids=[digits.experiment_id], filter_string=filter_string, order_by=order_by, output_format="list", **options
    )
    return [run.info.run_id for run in runs]


assert search("status = 'FINISHED'", ["attributes.start_time ASC"]) == ["digits-1", "digits-2"]
assert search("params.lr = '0.05'") == ["digits-1"]
assert search("params.lr LIKE '0.0_'", ["metrics.loss ASC"])[0] in ("digits-1", "digits-2")
by_loss = search("metrics.loss < 1000", ["metrics.loss DESC"])
losses = [client.get_run(one).data.metrics["loss"] for one in by_loss]
assert losses == sorted(losses, reverse=True) and len(losses) >= 2
assert search("tags.`saggar.experiment` = 'rate' and metrics.accuracy > 2") == []
assert set(search("attributes.run_name = 'digits-2' and tags.\"saggar.state\" = 'SUCCEEDED'")) == {"digits-2"}
assert "digits-3" in search() and len(search()) == 3
assert mlflow.search_runs(experiment_names=["digits"], output_format="list", max_results=1)[0].info.run_id == "digits-3"
first = client.search_runs([digits.experiment_id], max_results=2)
rest = client.search_runs([digits.experiment_id], max_results=2, page_token=first.token)
assert [one.info.run_id for one in list(first) + list(rest)] == ["digits-3", "digits-2", "digits-1"] and not rest.token
message = refused(lambda: search("metrics.loss ~ 1"), "INVALID_PARAMETER_VALUE")
assert "filter at character 14" in message, message
refused(lambda: search("", ["nothing.here"]), "INVALID_PARAMETER_VALUE")

# Outputs are artefacts.
artifacts = {one.path: one for one in client.list_artifacts("digits-1")}
assert "confusion.csv" in artifacts and artifacts["confusion.csv"].file_size > 0, artifacts
with tempfile.TemporaryDirectory() as folder:
    path = client.download_artifacts("digits-1", "confusion.csv", folder)
    assert os.path.getsize(path) == artifacts["confusion.csv"].file_size
    whole = mlflow.artifacts.download_artifacts(run_id="digits-1", dst_path=os.path.join(folder, "all"))
    assert os.path.getsize(os.path.join(whole, "confusion.csv")) == artifacts["confusion.csv"].file_size
    try:
        client.download_artifacts("digits-1", "none.csv", folder)
        raise AssertionError("none.csv is not there")
    except Exception as error:
        assert "404" in str(error) or "none.csv" in str(error), error

# Clients create experiments and external runs.
mine = mlflow.create_experiment("ablation")
refused(lambda: mlflow.create_experiment("ablation"), "RESOURCE_ALREADY_EXISTS")
mlflow.set_experiment("ablation")
with mlflow.start_run(run_name="first") as active:
    external = active.info.run_id
    mlflow.log_param("lr", 0.5)
    mlflow.log_params({"depth": 3, "note": "with 'quotes' and Ünïcode"})
    for step in range(20):
        mlflow.log_metric("loss", 1.0 / (step + 1), step=step)
    mlflow.log_metrics({"nan": math.nan, "inf": -math.inf})
    mlflow.set_tag("kind", "ablation")
    mlflow.set_tags({"a": "1", "b": "2"})
    assert client.get_run(external).info.status == "RUNNING"
    refused(lambda: client.log_param(external, "lr", 0.6), "INVALID_PARAMETER_VALUE")
read = client.get_run(external)
assert read.info.status == "FINISHED" and read.info.run_name == "first" and read.info.experiment_id == mine
assert read.data.params == {"lr": "0.5", "depth": "3", "note": "with 'quotes' and Ünïcode"}
assert read.data.metrics["loss"] == 0.05 and math.isnan(read.data.metrics["nan"])
assert read.data.metrics["inf"] == -math.inf and read.data.tags["kind"] == "ablation"
assert [point.step for point in client.get_metric_history(external, "loss")] == list(range(20))
client.delete_tag(external, "a")
assert "a" not in client.get_run(external).data.tags
assert client.list_artifacts(external) == []
now = read.info.start_time
client.log_batch(external, [Metric("loss", 0.01, now, 20)], [Param("batch", "1")], [RunTag("b", "3")])
assert client.get_run(external).data.metrics["loss"] == 0.01
found = mlflow.search_runs(experiment_ids=[mine], filter_string="metrics.loss < 0.02", output_format="list")
assert [one.info.run_id for one in found] == [external]
try:
    with mlflow.start_run(run_name="broken"):
        raise RuntimeError("on purpose")
except RuntimeError:
    pass
states = {one.info.run_name: one.info.status for one in client.search_runs([mine])}
assert states == {"first": "FINISHED", "broken": "FAILED"}, states
client.delete_run(external)
assert [one.info.run_name for one in client.search_runs([mine])] == ["broken"]
assert [one.info.run_name for one in client.search_runs([mine], run_view_type=ViewType.DELETED_ONLY)] == ["first"]
client.restore_run(external)

# An external run can be beside the jobs of a project, and the default experiment needs no creation.
with mlflow.start_run(experiment_id=digits.experiment_id, run_name="baseline"):
    mlflow.log_metric("loss", 9.0)
assert len(search()) == 4
beside = client.create_run("0")
assert client.get_run(beside.info.run_id).info.run_name

# Jobs are not changed.
message = refused(lambda: client.log_metric("digits-1", "loss", 0.0), "RESOURCE_ALREADY_EXISTS")
assert "is a job" in message, message
print("ok")
