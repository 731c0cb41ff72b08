// Issues tokens as Entra ID does for workload identities, and App Service for its own (/msi/token): over TLS, on a free port of loopback,
// which it prints as JSON. Exits when its standard input closes.
//
// node authority.mjs CERT KEY
//
// The federated token that a request brings is JSON and says what becomes of it: {"refuse": "AADSTS…"}, or claims that the token has
// beside the usual ones. Nothing is signed: Azurite does not check signatures.

import { readFileSync } from "node:fs";
import { createServer } from "node:https";

const [cert, key] = process.argv.slice(2).map((path) => readFileSync(path));
const encoded = (part) => Buffer.from(JSON.stringify(part)).toString("base64url");

function answer(tenant, form, header) {
  const asked = JSON.parse(form.get("client_assertion") ?? "{}");
  if (tenant === "msi" && header !== "app-service") return [401, { message: "no X-IDENTITY-HEADER" }];
  if (asked.refuse) return [401, { error: "invalid_client", error_description: `${asked.refuse} Trace ID: 1` }];
  const now = Math.floor(Date.now() / 1000);
  const claims = { oid: "0b0e", tid: tenant, iss: `https://sts.windows.net/${tenant}/`, aud: form.get("resource") ?? form.get("scope").replace("/.default", ""), iat: now, nbf: now - 300, exp: now + 3600, ...asked };
  const token = `${encoded({ alg: "none", typ: "JWT" })}.${encoded(claims)}.${encoded("unsigned")}`;
  return [200, { token_type: "Bearer", expires_in: 3600, expires_on: String(now + 3600), resource: claims.aud, access_token: token }];
}

const server = createServer({ cert, key }, (request, response) => {
  let body = "";
  request.on("data", (part) => (body += part));
  request.on("end", () => {
    const url = new URL(request.url, "https://localhost");
    const form = new URLSearchParams(body || url.search);
    const [status, json] = answer(url.pathname.split("/")[1], form, request.headers["x-identity-header"]);
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(json));
  });
});
server.listen(0, "127.0.0.1", () => console.log(JSON.stringify({ port: server.address().port })));
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
