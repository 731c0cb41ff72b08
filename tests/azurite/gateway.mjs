// A storage account that refuses shared keys, in front of an Azurite: checks the token of Entra ID that a request carries, and passes the
// request on under Azurite's own key. Listens on three free ports of loopback, which it prints as JSON. Exits when its standard input closes.
//
// node gateway.mjs CERT KEY PORTS
//
// CERT is the certificate of the authority (authority.mjs), whose signature a token must bear; KEY the account's key in Base64; PORTS those
// of Azurite, as run.mjs prints them. What carries a shared key or a signature is refused as an account does that has shared keys
// switched off.

import { createHmac, verify, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { Agent, createServer, request } from "node:http";

const [certificate, key, behind] = process.argv.slice(2);
const authority = new X509Certificate(readFileSync(certificate)).publicKey;
const secret = Buffer.from(key, "base64");
const ports = JSON.parse(behind);
const agent = new Agent({ keepAlive: true });
const decoded = (part) => JSON.parse(Buffer.from(part, "base64url"));

// Why a token is refused; nothing where it is good.
function refusal(header) {
  if (!header?.startsWith("Bearer ")) return "KeyBasedAuthenticationNotPermitted";
  const [head, body, signature] = header.slice(7).split(".");
  const signed = verify("sha256", Buffer.from(`${head}.${body}`), { key: authority, dsaEncoding: "ieee-p1363" }, Buffer.from(signature ?? "", "base64url"));
  if (!signed || decoded(head).alg !== "ES256") return "InvalidAuthenticationInfo";
  const { aud, iss, nbf, exp } = decoded(body);
  const now = Date.now() / 1000;
  const good = aud === "https://storage.azure.com" && iss?.startsWith("https://sts.windows.net/") && nbf <= now && now < exp;
  return good ? undefined : "InvalidAuthenticationInfo";
}

// The header `Authorization` of the scheme Shared Key.
function sign(service, method, target, headers) {
  const url = new URL(target, "http://127.0.0.1");
  const account = url.pathname.split("/")[1];
  const of = (name) => headers[name] ?? "";
  let text;
  if (service === "table") {
    const comp = url.searchParams.get("comp");
    text = [method, of("content-md5"), of("content-type"), of("x-ms-date"), `/${account}${url.pathname}${comp ? `?comp=${comp}` : ""}`].join("\n");
  } else {
    const length = of("content-length") === "0" ? "" : of("content-length");
    const plain = ["content-encoding", "content-language", null, "content-md5", "content-type", null, "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range"];
    const lines = plain.map((name, nth) => (nth === 2 ? length : name ? of(name) : ""));
    const own = Object.keys(headers).filter((name) => name.startsWith("x-ms-")).sort();
    const query = [...new Set(url.searchParams.keys())].sort().map((name) => `\n${name.toLowerCase()}:${url.searchParams.getAll(name).sort().join(",")}`);
    text = `${[method, ...lines, ...own.map((name) => `${name}:${headers[name]}`)].join("\n")}\n/${account}${url.pathname}${query.join("")}`;
  }
  return `SharedKey ${account}:${createHmac("sha256", secret).update(text, "utf8").digest("base64")}`;
}

function refuse(incoming, response, code) {
  incoming.resume();
  const status = code === "KeyBasedAuthenticationNotPermitted" ? 403 : 401;
  response.writeHead(status, { "x-ms-error-code": code, "content-type": "application/xml" });
  response.end(incoming.method === "HEAD" ? undefined : `<?xml version="1.0" encoding="utf-8"?><Error><Code>${code}</Code><Message>${code}</Message></Error>`);
}

function pass(service, incoming, response) {
  const refused = refusal(incoming.headers.authorization);
  if (refused) return refuse(incoming, response, refused);
  const { host, connection, "x-ms-copy-source-authorization": source, ...headers } = incoming.headers;
  headers["x-ms-date"] ??= new Date().toUTCString();
  if (headers["x-ms-copy-source"]) {
    // Between accounts a token for the source comes along; inside one the request's own counts for it.
    if (source && refusal(source)) return refuse(incoming, response, "CannotVerifyCopySource");
    const url = new URL(headers["x-ms-copy-source"]);
    url.port = ports.blob;
    headers["x-ms-copy-source"] = url.href;
  }
  headers.authorization = sign(service, incoming.method, incoming.url, headers);
  const { method, url: path } = incoming;
  const onward = request({ host: "127.0.0.1", port: ports[service], method, path, headers, agent }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  onward.on("error", () => response.destroy());
  incoming.pipe(onward);
}

const listening = await Promise.all(["blob", "queue", "table"].map((service) => new Promise((done) => {
  const server = createServer({ keepAliveTimeout: 120_000 }, (incoming, response) => pass(service, incoming, response));
  server.listen(0, "127.0.0.1", () => done([service, server.address().port]));
})));
console.log(JSON.stringify(Object.fromEntries(listening)));
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
