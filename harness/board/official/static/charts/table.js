/** A table with pages; a click on a column's head sorts by it. */

import { textOf, valueOf, labelOf } from "./data_table.js";

export class Table {
  constructor(container) {
    this.container = container;
  }

  draw(table, options) {
    this.table = table;
    this.container.style.height = options.height ?? "";
    this.perPage = options.page === "enable" ? (options.pageSize ?? 30) : table.rows.length;
    this.order = table.rows.map((_, row) => row);
    this.page = 0;
    this.sorted = { column: options.sortColumn, ascending: options.sortAscending ?? true };
    if (this.sorted.column !== undefined) this.sort();
    this.render();
  }

  clearChart() {
    this.container.replaceChildren();
  }

  sort() {
    const { column, ascending } = this.sorted;
    const sign = ascending ? 1 : -1;
    const value = (row) => valueOf(this.table.rows[row][column]);
    this.order.sort((a, b) => sign * compared(value(a), value(b)) || a - b);
  }

  render() {
    const head = element("tr", {}, this.table.columns.map((column, index) => this.head(column, index)));
    const from = this.page * this.perPage;
    const rows = this.order.slice(from, from + this.perPage).map((row) => this.row(row));
    const whole = element("table", { className: "table" }, [
      element("thead", {}, [head]),
      element("tbody", {}, rows),
    ]);
    const scroller = element("div", { className: "table-scroller" }, [whole]);
    this.container.replaceChildren(scroller, ...this.pages());
  }

  head(column, index) {
    const chosen = this.sorted.column === index;
    const mark = chosen ? (this.sorted.ascending ? " ▲" : " ▼") : "";
    const button = element("button", { type: "button", textContent: labelOf(column) + mark });
    button.addEventListener("click", () => {
      this.sorted = { column: index, ascending: chosen ? !this.sorted.ascending : column.type !== "number" };
      this.sort();
      this.page = 0;
      this.render();
      this.container.querySelectorAll("th button")[index].focus();
    });
    const cell = element("th", { scope: "col" }, [button]);
    if (chosen) cell.setAttribute("aria-sort", this.sorted.ascending ? "ascending" : "descending");
    return cell;
  }

  row(row) {
    const cells = this.table.columns.map((column, index) => {
      const cell = element("td", { textContent: textOf(this.table.rows[row][index]) });
      if (column.type === "number") cell.className = "number";
      const style = this.table.getProperty(row, index, "style");
      if (style) cell.style.cssText = style;
      return cell;
    });
    return element("tr", {}, cells);
  }

  pages() {
    const count = Math.ceil(this.order.length / this.perPage);
    if (count <= 1) return [];
    const turn = (text, by) => {
      const button = element("button", { type: "button", textContent: text });
      button.disabled = this.page + by < 0 || this.page + by >= count;
      button.addEventListener("click", () => {
        this.page += by;
        this.render();
      });
      return button;
    };
    const where = element("span", { textContent: `${this.page + 1} of ${count}` });
    return [element("div", { className: "table-pages" }, [turn("Previous", -1), where, turn("Next", 1)])];
  }
}

function element(name, properties, children = []) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function compared(a, b) {
  return typeof a === "number" && typeof b === "number" ? a - b : String(a ?? "").localeCompare(String(b ?? ""));
}
