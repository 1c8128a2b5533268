"""The network behind Flask: gunicorn --workers 2 --worker-class gthread --threads 4 flask_app:app."""

from flask import Flask, jsonify, request

from network import Network, answer, images

app = Flask(__name__)
network = Network()


@app.post("/predict")
def predict():
    return jsonify(answer(*network.run(images(request.get_json()))))
