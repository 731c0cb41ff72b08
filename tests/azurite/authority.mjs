// Issues tokens as Entra ID does for workload identities, and App Service for its own (/msi/token): over TLS, on a free port of loopback,
// which it prints as JSON. Exits when its standard input closes.
//
// node authority.mjs CERT KEY
//
// The federated token that a request brings is JSON and says what becomes of it: {"refuse": "AADSTS…"}; {"until": …}, when it is over
// itself (milliseconds); {"life": …}, the seconds of the token, an hour where it does not say; or claims that the token has beside the
// usual ones. Tokens are signed by the key of the certificate (ES256), which Azurite does not check and gateway.mjs does.

import { sign } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:https";

const [cert, key] = process.argv.slice(2).map((path) => readFileSync(path));
const encoded = (part) => Buffer.from(JSON.stringify(part)).toString("base64url");

function answer(tenant, form, header) {
  const asked = JSON.parse(form.get("client_assertion") ?? "{}");
  if (tenant === "msi" && header !== "app-service") return [401, { message: "no X-IDENTITY-HEADER" }];
  if (asked.refuse) return [401, { error: "invalid_client", error_description: `${asked.refuse} Trace ID: 1` }];
  if (asked.until < Date.now()) return [401, { error: "invalid_client", error_description: "AADSTS700024: Client assertion is not within its valid time range." }];
  const now = Math.floor(Date.now() / 1000);
  const life = asked.life ?? 3600;
  const claims = { oid: "0b0e", tid: tenant, iss: `https://sts.windows.net/${tenant}/`, aud: form.get("resource") ?? form.get("scope").replace("/.default", ""), iat: now, nbf: now - 300, exp: now + life, ...asked };
  const signed = `${encoded({ alg: "ES256", typ: "JWT" })}.${encoded(claims)}`;
  const token = `${signed}.${sign("sha256", Buffer.from(signed), { key, dsaEncoding: "ieee-p1363" }).toString("base64url")}`;
  return [200, { token_type: "Bearer", expires_in: life, expires_on: String(now + life), resource: claims.aud, access_token: token }];
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
