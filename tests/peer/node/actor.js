// Producers and consumers of ali-ons, which speaks the remoting protocol in JavaScript, driven line by line.
//
//   node actor.js NAMESRV
//
// A line is a verb and words key=value, separated by tabs; each is answered by one JSON line. The end of standard input stops all.
'use strict';

const readline = require('readline');
const { Consumer, Message, Producer } = require('ali-ons');

const nameServers = process.argv[2].split(';');
const quiet = { info() {}, debug() {}, warn() {}, error() {} };
const clients = new Map();
const received = new Map();

function common(options) {
  const httpclient = { request() { throw new Error('name servers are given, nobody is to be asked'); } };
  return {
    nameSrv: nameServers, httpclient, logger: quiet, instanceName: options.name,
    pollNameServerInteval: 1000, rebalanceInterval: 1000, // 30 and 10 s otherwise: retry topics come later than their consumers
  };
}

async function started(name, client) {
  client.on('error', () => {}); // what a test looks at is what arrives
  await client.ready();
  clients.set(name, client);
}

function messageOf(options, body) {
  const message = new Message(options.topic, options.tags || '', body);
  if (options.key) message.keys = [ options.key ];
  if (options.delay) message.delayTimeLevel = Number(options.delay);
  for (const [ key, value ] of Object.entries(options)) {
    if (key.startsWith('property.')) message.properties[key.slice(9)] = value;
  }
  return message;
}

function textOf(body) {
  const text = body.toString();
  return text.length > 100 ? `${text.slice(0, 10)}...${text.length}` : text;
}

const verbs = {
  async producer(options) {
    await started(options.name, new Producer({ ...common(options), producerGroup: options.group || options.name }));
  },

  async send(options) {
    const ids = [];
    for (let number = 0; number < Number(options.count || 1); number++) {
      let body = `${options.body}-${number}`;
      if (options.size) body = body.padEnd(Number(options.size), 'x');
      const result = await clients.get(options.name).send(messageOf(options, body));
      ids.push({ status: String(result.sendStatus), msgId: result.msgId, offset: Number(result.queueOffset) });
    }
    return ids;
  },

  // from the first offset; fails: how often a message is refused before it is taken
  async push(options) {
    const consumer = new Consumer({
      ...common(options),
      consumerGroup: options.group,
      consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
      isBroadcast: options.broadcast === 'true',
      maxReconsumeTimes: Number(options.tries || 16),
    });
    received.set(options.name, []);
    const condition = options.sql ? { expressionType: 'SQL92', subString: options.sql } : options.tags || '*';
    consumer.subscribe(options.topic, condition, async message => {
      received.get(options.name).push({
        topic: message.topic, body: textOf(message.body), tag: message.tags, keys: message.keys, msgId: message.msgId,
        reconsumeTimes: message.reconsumeTimes, properties: message.properties,
        born: Number(message.bornTimestamp), stored: Number(message.storeTimestamp),
      });
      if (message.reconsumeTimes < Number(options.fails || 0)) throw new Error('refused on purpose');
    });
    await started(options.name, consumer);
  },

  async taken(options) {
    return received.get(options.name).splice(0);
  },

  async stop(options) {
    await clients.get(options.name).close();
    clients.delete(options.name);
  },
};

async function answer(line) {
  const [ verb, ...words ] = line.split('\t');
  const options = Object.fromEntries(words.map(word => {
    const at = word.indexOf('=');
    return [ word.slice(0, at), word.slice(at + 1) ];
  }));
  try {
    return { result: (await verbs[verb](options)) || null };
  } catch (error) {
    return { error: error.message };
  }
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(await answer(line)) + '\n');
  }
  process.exit(0);
}

main();
