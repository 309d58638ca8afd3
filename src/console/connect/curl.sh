curl {url}/v1/generate/text \
  -H "Authorization: Bearer $GENSVC_API_KEY" \
  -H 'Content-Type: application/json' \
  -d '{"prompt": "Name three rivers"}'
