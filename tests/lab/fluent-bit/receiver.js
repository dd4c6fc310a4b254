// Receives logs over TLS from senders that know the shared key, acknowledges them, and appends them to a file as lines of JSON.
// node receiver.js ADDRESS PORT CERTIFICATE KEY SHARED_KEY FILE; NODE_PATH is where the packages are.
const fs = require("fs");
const { isUtf8 } = require("buffer");
const { Decoder } = require("@msgpack/msgpack");
const { FluentServer } = require("@fluent-org/logger");

// Fluent Bit sends its salt, which is 16 random bytes, as a string. Decoded as text, it would not be the same bytes any more.
const text = Decoder.prototype.decodeUtf8String;
Decoder.prototype.decodeUtf8String = function (length, header) {
  const from = this.pos + header;
  const bytes = this.bytes.subarray(from, from + length);
  const isText = bytes.length < length || isUtf8(bytes);
  return isText ? text.call(this, length, header) : this.decodeBinary(length, header);
};

const [host, port, certificate, key, sharedKey, file] = process.argv.slice(2);
const server = new FluentServer({
  listenOptions: { host, port: Number(port) },
  tlsOptions: { cert: fs.readFileSync(certificate), key: fs.readFileSync(key) },
  security: { serverHostname: "receiver", sharedKey },
});
server.on("entry", (tag, _time, record) => fs.appendFileSync(file, JSON.stringify({ tag, record }) + "\n"));
server.listen().then(() => console.log(server.port));
