curl {url} \
  -H "Authorization: Bearer $GENSVC_API_KEY" \
  -H 'Content-Type: application/json'{wait} \
  -d '{body}'
