// Browsers give pages that are read from a file no workers. The site's search then works in a frame instead.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      const frame = Object.assign(document.createElement("iframe"), { hidden: true, srcdoc: "<!doctype html>" })
      this.loaded = new Promise(resolve => frame.addEventListener("load", () => {
        const inside = frame.contentWindow
        inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
        const script = Object.assign(inside.document.createElement("script"), { src: address })
        script.addEventListener("load", () => resolve(inside))
        inside.document.head.append(script)
      }, { once: true }))
      document.documentElement.append(frame)
    }

    async postMessage(data) {
      const inside = await this.loaded
      inside.dispatchEvent(new MessageEvent("message", { data }))
    }
  }
