const response = await fetch("{url}", {
  method: "POST",
  headers: {
    Authorization: `Bearer ${process.env.GENSVC_API_KEY}`,
    "Content-Type": "application/json",{wait}
  },
  body: JSON.stringify({body}),
});
if (!response.ok) throw new Error(await response.text());
console.log((await response.json()).result);
