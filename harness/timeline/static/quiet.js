// What the Perfetto UI asks of other machines and of other programs on this one is answered here, with a no: a
// Google script at its start, and whether a trace processor runs on a port of this machine. The content security
// policy would refuse both, and say so in the console each time. The UI's own policy is looser and goes too.

const own = (address) => new URL(address, location.href).origin === location.origin;

// Whether a node of the UI's own making may go into the page.
const wanted = (node) => {
  if (node instanceof HTMLMetaElement) return node.httpEquiv !== 'Content-Security-Policy';
  if (!(node instanceof HTMLScriptElement) || own(node.src)) return true;
  node.dispatchEvent(new Event('error'));
  return false;
};

const append = document.head.append.bind(document.head);
document.head.append = (...nodes) => append(...nodes.filter(wanted));
document.head.appendChild = (node) => {
  document.head.append(node);
  return node;
};

const ask = window.fetch.bind(window);
window.fetch = (resource, options) => {
  const address = resource instanceof Request ? resource.url : String(resource);
  return own(address) || /^(blob|data):/.test(address) ? ask(resource, options) : Promise.reject(new TypeError('offline'));
};
