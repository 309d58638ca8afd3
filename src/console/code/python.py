import os
import requests

response = requests.post(
    "{url}",
    headers={
        "Authorization": f"Bearer {os.environ['GENSVC_API_KEY']}",{wait}
    },
    json={body},
    timeout=120,
)
response.raise_for_status()
print(response.json()["result"])
