from openai import OpenAI

client = OpenAI(
    base_url="{url}/openai/v1",
    api_key="svc_...",
)
answer = client.chat.completions.create(
    model="{model}",
    messages=[{"role": "user", "content": "Name three rivers"}],
)
print(answer.choices[0].message.content)
