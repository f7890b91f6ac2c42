// Log in with the Node driver, write and read; print what came of it as JSON: node login.mjs URI OPTIONS
import { MongoClient } from "mongodb";

const [uri, options] = process.argv.slice(2);
const client = new MongoClient(uri, JSON.parse(options));
let told;
try {
  const table = client.db("logins").collection("node");
  await table.updateOne({ _id: 1 }, { $set: { a: 1 } }, { upsert: true });
  told = { found: await table.findOne({ _id: 1 }), tls: client.options.tls === true };
} catch (error) {
  told = { name: error.constructor.name, code: error.code ?? null, message: error.message };
} finally {
  await client.close();
}
console.log(JSON.stringify(told));
