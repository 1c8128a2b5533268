"""Tables to compare the plugin `tabular` with scikit-learn.

    tables.py write DIR           writes wine.csv, cancer.csv, diabetes.csv and houses.csv
    tables.py score DIR           prints the score of scikit-learn's network, with its defaults, on an exported dataset:
                                  accuracy for classes, R2 for a quantity, the mean over five seeds
"""

import csv
import json
import pathlib
import statistics
import sys

import numpy
from sklearn import datasets
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

SEEDS = range(5)
SHORES = ["bay", "inland", "island", "ocean"]


def houses(count=2000):
    """A table like California housing: skewed numbers, a column of texts, and a price that depends on all of them."""
    random = numpy.random.default_rng(7)
    income = random.lognormal(1.2, 0.45, count)
    age = random.integers(1, 53, count)
    rooms = random.lognormal(1.65, 0.25, count)
    bedrooms = rooms * random.uniform(0.15, 0.3, count)
    population = random.lognormal(7.0, 0.7, count)
    people = random.lognormal(1.05, 0.25, count)
    latitude = random.uniform(32.5, 42, count)
    longitude = random.uniform(-124, -114, count)
    shore = random.integers(0, len(SHORES), count)
    price = 0.45 * income + 0.3 * numpy.sin(latitude) + 0.01 * age + 0.4 * numpy.tanh(rooms - 5) - 0.35 * people
    price += 0.05 * (longitude + 119) ** 2 / 5 + numpy.array([0.8, -0.4, 0.3, 0.5])[shore] - 0.0001 * population
    price += 0.15 * random.standard_normal(count)
    columns = [income, age, rooms, bedrooms, population, people, latitude, longitude]
    names = ["income", "age", "rooms", "bedrooms", "population", "people", "latitude", "longitude", "shore", "price"]
    rows = [[*numbers, SHORES[kind], value] for *numbers, kind, value in zip(*columns, shore, price)]
    return names, rows


def bundled(bunch):
    """A table of scikit-learn, with the names of its classes."""
    named = getattr(bunch, "target_names", None)
    answer = bunch.target if named is None else named[bunch.target]
    # Rows are sorted by class in some of these tables.
    order = numpy.random.default_rng(3).permutation(len(answer))
    names = [*(name.replace(" ", "_") for name in bunch.feature_names), "answer"]
    return names, [[*bunch.data[row], answer[row]] for row in order]


def write(folder):
    tables = {
        "wine": bundled(datasets.load_wine()),
        "cancer": bundled(datasets.load_breast_cancer()),
        "diabetes": bundled(datasets.load_diabetes()),
        "houses": houses(),
    }
    for name, (header, rows) in tables.items():
        with open(folder / f"{name}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerows(rows)


def score(folder):
    description = json.loads((folder / "dataset.json").read_text())
    arrays = {field["name"]: numpy.load(folder / field["file"]) for field in description["fields"]}
    answer = arrays.pop("label" if "label" in arrays else "target")
    categories = [name for name in arrays if name != "x"]
    inputs = numpy.column_stack([arrays["x"], *(arrays[name] for name in categories)])
    width = arrays["x"].shape[1]
    split = description["splits"]
    train, test = (slice(*split[name]) for name in ("train", "test"))
    columns = ColumnTransformer([
        ("numbers", StandardScaler(), list(range(width))),
        ("categories", OneHotEncoder(handle_unknown="ignore"), list(range(width, inputs.shape[1]))),
    ])
    scores = []
    for seed in SEEDS:
        if numpy.issubdtype(answer.dtype, numpy.integer):
            network = MLPClassifier(random_state=seed)
        else:
            network = TransformedTargetRegressor(MLPRegressor(random_state=seed), transformer=StandardScaler())
        model = make_pipeline(columns, network).fit(inputs[train], answer[train])
        scores.append(model.score(inputs[test], answer[test]))
    print(statistics.mean(scores))


if __name__ == "__main__":
    action, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    {"write": write, "score": score}[action](folder)
