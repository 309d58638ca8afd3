from anthropic import Anthropic

client = Anthropic(
    base_url="{url}/anthropic",
    api_key="svc_...",
)
answer = client.messages.create(
    model="{model}",
    max_tokens=1024,
    messages=[{"role": "user", "content": "Name three rivers"}],
)
print(answer.content[0].text)
